/* SPDX-License-Identifier: MIT */
/*
 * kernels.ptx as a string. Alone in a file because link-time optimization would lose what an asm
 * statement defines. The last directive says that the stack is not executable.
 */
#include "queue/ptx.h"

__asm__(".pushsection .rodata\n"
	".globl queue_ptx\n"
	".type queue_ptx, %object\n"
	"queue_ptx: .incbin \"queue/kernels.ptx\"\n"
	".byte 0\n"
	".size queue_ptx, . - queue_ptx\n"
	".popsection\n"
	".pushsection .note.GNU-stack, \"\", %progbits\n"
	".popsection\n");
