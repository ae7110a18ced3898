// Exists so that each precompiled header has a target to be built by.
