// Exists so that the precompiled header of layers without LibTorch has a target to be built by.
