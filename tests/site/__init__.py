"""What `make site` needs beside MkDocs: pages from outside docs/, and a check of what was built."""
