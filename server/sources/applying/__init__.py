"""Patches of strangers: screened, then applied by git in a sandbox."""
