"""`python -m draftsmith`: the program that the package carries."""

from draftsmith_program import main

if __name__ == "__main__":
    main()
