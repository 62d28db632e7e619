"""CheckMate, chapter 3 of Siachamis 2024: checkpoint protocols beside each other."""
