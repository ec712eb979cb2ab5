"""The rollout server: one vLLM engine behind HTTP, for `--use_vllm true --vllm_mode server`.

`python -m grpo_doctor_trainer.serve` starts it. Each rank of the trainer sends its own prompts, and
the engine decodes those of all ranks together; new weights come from rank 0.

The threads: the main one builds the engine and steps it (`loop.py`); nothing else touches vLLM. One
thread per connection reads a request, hands it to the loop and writes the answer (`web.py`).
"""
