"""Small configurations that several networks of transformers share."""

WIDTHS = [16, 32, 48, 64]
ONES = [1, 1, 1, 1]
TWOS = [2, 2, 2, 2]
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 64,
    "patch_size": 8,
}
SWIN = {
    "image_size": 64,
    "embed_dim": 16,
    "depths": [1, 1, 2, 1],
    "num_heads": TWOS,
    "window_size": 2,
}
RESNET = {"embedding_size": 16, "hidden_sizes": WIDTHS, "depths": ONES}
SPEECH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (32, 32, 32),
    "conv_kernel": (10, 3, 2),
    "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_labels": 3,
    "vocab_size": 12,
}
