"""Many runs from one grid."""
