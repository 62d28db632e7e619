"""What learnt elasticity policies see and may do; no engine and no training is known here."""
