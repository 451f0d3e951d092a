"""What a library chooses, as the rules that it reads itself: exports of a question and a library, found as those of a folder."""
