"""Name and version of the SDK, as it reports them to the host."""

SDK_NAME = "capstan-sdk-python"
SDK_VERSION = "0.1.0"
