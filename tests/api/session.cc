// The same program as C++: the header can be used from there, and so can every call.
#include "session.c"
