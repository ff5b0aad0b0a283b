# Throw-away: what the second look at the device runs.
export PYTHONUNBUFFERED=1
one() { timeout 60 python3 -m benchmarks.way_profile one "$@" 2>&1 | grep -v "terminate called" | tail -40; }
(time timeout 100 python3 -m pytest -q -n 14 -p no:cacheprovider tests/torch tests/runtime tests/quantizers/test_cuda.py -m "not gpu and not slow") 2>&1 | tail -40
(time timeout 150 python3 -m benchmarks.gpu_suite $OUT/gpu_suite.json) 2>&1 | tail -40
for again in 1 2; do
  for variant in plain asleep cores spin; do WAY_VARIANT=$variant one small "uncoded(1)"; done
done
for model in small pictures; do mkdir -p /tmp/t_$model; WAY_TRACE=/tmp/t_$model one $model "uncoded(1)"; done
WAY_VARIANT=plain one pictures "uncoded(1)"; WAY_VARIANT=plain one small "uncoded(4)"; WAY_VARIANT=cores one pictures "uncoded(1)"
timeout 220 python3 -m benchmarks.device_faults $OUT/device_faults.json 200 2>&1 | grep -v "terminate called" | tail -60
uptime; nvidia-smi --query-gpu=memory.used --format=csv,noheader
