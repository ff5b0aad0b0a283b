# All that is measured on a device: the marked tests, faults, reading, and what a step costs. MINUTES: for the last of these.
export PYTHONUNBUFFERED=1
OUT=${OUT:-benchmarks/results} MINUTES=${MINUTES:-30}
python3 -m benchmarks.gpu_suite "$OUT/gpu_suite.json"
python3 -m benchmarks.device_faults "$OUT/device_faults.json"
python3 -m benchmarks.reading_gpu "$OUT/reading_gpu.json"
python3 -m benchmarks.way_gpu "$OUT/way_gpu.json" "$MINUTES"
