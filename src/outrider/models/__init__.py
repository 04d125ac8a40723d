"""Loading: GGUF files and safetensors directories, tokenizers, chat templates, the catalog."""
