// Exists so that the precompiled header of layers with LibTorch has a target to be built by.
