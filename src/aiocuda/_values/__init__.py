"""Values that users give: checked, and in the form that native code takes. Knows no device."""
