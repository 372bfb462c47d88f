/* The steps, each a function that asserts what it sees. */

#ifndef OPERATIONS_H
#define OPERATIONS_H

struct step {
    const char *name;
    void (*run)(void);
};

/* Ends with one that has no name. */
extern const struct step steps[];

#endif
