"""`python -m grpo_doctor_trainer.serve` is gone; says what there is instead."""

import sys

if __name__ == "__main__":
    sys.stderr.write(
        "error: the trainer's own server is gone: start the trainer with --use_vllm true "
        "--vllm_mode server, and then vLLM's own server by the command that the trainer shows\n"
    )
    sys.exit(2)
