# Try grpo-doctor without installing anything: a demo run on 2 CPU ranks, with its report.
#
#   docker build -t grpo-doctor .
#   docker run --rm -v "$PWD/out:/out" grpo-doctor            # then open out/demo/report.html
#   docker run --rm grpo-doctor check --gpus 8xA100-80G -- swift rlhf --rlhf_type grpo ...
#   docker run --rm --pid=container:JOB --cap-add SYS_PTRACE grpo-doctor attach
FROM python:3.12-slim
WORKDIR /src
COPY . .
# A range for torch pulls gigabytes of CUDA packages; constraints.txt pins a version that runs on a CPU.
RUN pip install --no-cache-dir -c constraints.txt torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir '.[trainer]'
WORKDIR /out
ENTRYPOINT ["grpo-doctor"]
CMD ["run", "-o", "/out/demo", "--", "--max_steps", "30"]
