"""python -m unstraggle"""

from .app.cli import main

main()
