//! What goes wrong is told to the program, counted, and does not stop the rest.
