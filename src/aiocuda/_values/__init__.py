"""What users give: checked, and in the form that native code takes; knows no device."""
