"""python -m unstraggle.cli"""

from . import main

main()
