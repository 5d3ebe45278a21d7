# What differs from our own trainer:
# - Prompts come in another order, and verl's servers draw the responses: of the same distribution, but others. Prompts at the end of an epoch that fill no batch are dropped; ours are dealt on into the next epoch.
# - Responses are dealt to GPUs by length, so a mini-batch holds some of many prompts; ours holds whole prompts. Advantages are solved before, for whole prompts.
# - log pi_old is always computed in a forward pass of its own; ours of an iteration's first optimiser step is that of the step itself, and the log-ratio exactly 0.
# - FSDP2 shards weights, gradients and optimiser over all GPUs; ours is ZeRO-2.
# - verl divides means over rows by the configured number of rows, so rows without a token count: empty responses, and those that fill a batch up.
# - An optimiser step whose gradient is not finite is skipped; ours stops the run.
# - Nothing audits the KL after the last update: actor/kl/new_old is that of micro-batches before a step.
python -m quatro.integrations.verl.check quatro && \
  python -m verl.trainer.main_ppo \
  algorithm.adv_estimator=quatro \
  algorithm.use_kl_in_reward=false \
  +algorithm.quatro.name=quatro \
  +algorithm.quatro.delta=0.01 \
  +algorithm.quatro.log_ratio=detached \
  +algorithm.quatro.ratio=sequence \
  +algorithm.quatro.loss_norm=rows \
  +algorithm.quatro.max_log_ratio=20.0 \
  +algorithm.quatro.boundary_cap=0.95 \
  +algorithm.quatro.advantage_floor=-20.0 \
  +algorithm.quatro.temperature=dual \
  +algorithm.quatro.tau=null \
  actor_rollout_ref.actor.policy_loss._target_=quatro.integrations.verl.plugin.PolicyLoss \
  actor_rollout_ref.actor.policy_loss.loss_mode=quatro \
  '+actor_rollout_ref.actor.policy_loss.quatro=${algorithm.quatro}' \
  data.train_files=prompts.parquet \
  data.val_files=prompts.parquet \
  data.max_prompt_length=512 \
  data.max_response_length=3072 \
  data.filter_overlong_prompts=true \
  data.truncation=error \
  data.train_batch_size=256 \
  data.shuffle=true \
  data.seed=0 \
  reward.custom_reward_function.path=pkg://quatro.integrations.verl.reward \
  reward.custom_reward_function.name=compute_score \
  '+reward.custom_reward_function.reward_kwargs.reward={name:math}' \
  actor_rollout_ref.model.path=Qwen/Qwen2.5-Math-7B \
  actor_rollout_ref.model.enable_gradient_checkpointing=false \
  actor_rollout_ref.actor.strategy=fsdp2 \
  actor_rollout_ref.actor.fsdp_config.model_dtype=fp32 \
  '+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:bf16,reduce_dtype:fp32,buffer_dtype:fp32}' \
  actor_rollout_ref.actor.fsdp_config.optimizer_offload=false \
  '+actor_rollout_ref.ref.fsdp_config.mixed_precision={param_dtype:bf16,reduce_dtype:fp32,buffer_dtype:fp32}' \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 \
  actor_rollout_ref.actor.ppo_epochs=1 \
  actor_rollout_ref.actor.shuffle=false \
  actor_rollout_ref.actor.data_loader_seed=0 \
  actor_rollout_ref.actor.use_dynamic_bsz=false \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
  actor_rollout_ref.actor.optim.lr=1e-06 \
  'actor_rollout_ref.actor.optim.betas=[0.9,0.999]' \
  actor_rollout_ref.actor.optim.weight_decay=0.0 \
  actor_rollout_ref.actor.optim.clip_grad=1.0 \
  actor_rollout_ref.actor.optim.lr_warmup_steps=-1 \
  actor_rollout_ref.actor.entropy_coeff=0.0 \
  actor_rollout_ref.actor.use_kl_loss=true \
  actor_rollout_ref.actor.kl_loss_coef=0.001 \
  actor_rollout_ref.actor.kl_loss_type=low_var_kl \
  actor_rollout_ref.actor.loss_agg_mode=token-mean \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.temperature=1.0 \
  actor_rollout_ref.rollout.top_p=1.0 \
  actor_rollout_ref.rollout.top_k=-1 \
  actor_rollout_ref.rollout.seed=0 \
  actor_rollout_ref.rollout.dtype=bfloat16 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.calculate_log_probs=true \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 \
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1 \
  trainer.nnodes=1 \
  trainer.n_gpus_per_node=4 \
  trainer.project_name=quatro \
  trainer.experiment_name=math-7b-4gpu \
  'trainer.logger=[console,file]' \
  trainer.total_training_steps=100 \
  trainer.total_epochs=100 \
  trainer.save_freq=20 \
  trainer.max_actor_ckpt_to_keep=3 \
  trainer.default_local_dir=runs/verl/math-7b-4gpu \
  trainer.rollout_data_dir=runs/verl/math-7b-4gpu/rollouts \
  trainer.resume_mode=auto \
  trainer.test_freq=-1 \
  trainer.val_before_train=false
