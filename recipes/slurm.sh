#!/bin/bash
# sbatch recipes/slurm.sh runs/mine --config recipes/adapt.yaml: adapt on eight GPUs, saved and requeued at the time limit.
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --signal=USR1@120
#SBATCH --requeue
#
# Each SLURM task is one process of the run, with no launcher between: torchrun and accelerate launch die of USR1 and
# leave their workers behind, while a task gets it, saves, and ends with 75, which srun passes on.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500}
srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
  export LOCAL_WORLD_SIZE=$((SLURM_NTASKS / SLURM_NNODES))
  exec python recipes/adapt.py "$@"' bash "$@"
code=$?
[ "$code" -eq 75 ] && exec scontrol requeue "$SLURM_JOB_ID"
exit "$code"
