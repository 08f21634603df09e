"""Operations, and what they are put together to."""
