/* Marks what libternmq exports; everything else in it is hidden. */
#ifndef TERN_EXPORT_H
#define TERN_EXPORT_H

#define TERN_API __attribute__((visibility("default")))

#endif
