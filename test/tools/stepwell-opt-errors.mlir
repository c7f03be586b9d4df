// What stepwell-opt says about a command line that makes no sense.

// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(cse,canonicalise)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: there is no pass called canonicalise; did you mean canonicalize

// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(cse{a=b)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=BRACE
// BRACE: error: pass pipeline, column 19: this '{' is never closed

// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(cse cse)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=COMMA
// COMMA: error: pass pipeline, column 20: expected ',' or ')' after 'cse'

// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(cse))' 2>&1 \
// RUN:   | filecheck %s --check-prefix=PARENTHESIS
// PARENTHESIS: error: pass pipeline, column 20: ')' closes nothing

// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(fold-constants{speed=1})' 2>&1 \
// RUN:   | filecheck %s --check-prefix=OPTION
// OPTION: error: pass fold-constants has no option speed

// RUN: not stepwell-opt %s --target=pdp-11 2>&1 | filecheck %s --check-prefix=TARGET
// TARGET: error: there is no target pdp-11

// RUN: not stepwell-opt %t.missing 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING: No such file or directory

func.func @f() {
  return
}
