/* An extension of the user's own, with a loop that does not end. */
double solve(double tolerance) {
  volatile double rest = 1.0;
  while (rest > -tolerance) rest = rest * 0.999 + 0.001;
  return rest;
}
