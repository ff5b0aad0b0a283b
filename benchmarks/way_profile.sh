# Throw-away: what the first look at the device runs.
export PYTHONUNBUFFERED=1 OUT=${OUT:-/tmp/out}
python3 -c "
import importlib
for name in ('pytest', 'scipy', 'numba', 'typer', 'rich', 'hypothesis', 'torchvision', 'triton', 'pytest_timeout', 'xdist'):
    try: print(name, getattr(importlib.import_module(name), '__version__', '?'))
    except Exception as error: print(name, 'missing', error)"
nvidia-smi --query-gpu=name,driver_version,compute_mode,memory.used --format=csv; nproc; uptime
python3 -m benchmarks.way_profile pingpong
python3 -m benchmarks.way_profile kernels
one() { timeout 90 python3 -m benchmarks.way_profile one "$@" 2>&1 | tail -40; }
for model in small pictures; do mkdir -p /tmp/t_$model; WAY_TRACE=/tmp/t_$model one $model "uncoded(1)"; done
for again in 1 2; do
  for variant in plain nohooks spin nohooks+spin; do WAY_VARIANT=$variant one small "uncoded(1)"; done
  WAY_VARIANT=noahead one small "uncoded(1)" 0
done
for variant in plain nohooks+spin; do WAY_VARIANT=$variant one pictures "uncoded(1)"; WAY_VARIANT=$variant one small "uncoded(4)"; done
mkdir -p /tmp/t_spin; WAY_VARIANT=nohooks+spin WAY_TRACE=/tmp/t_spin one small "uncoded(1)"
python3 -m pytest --version && timeout 100 python3 -m pytest -q -x -p no:cacheprovider -k cuda tests/torch/test_torch_ways.py 2>&1 | tail -15
uptime
