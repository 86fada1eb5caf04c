/** A terminal has colour and a width. A pipe or a file has neither. @module */
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { sys } from "../../ffi/sys/libc.ts";

// asm-generic/ioctls.h
const TIOCGWINSZ = 0x5413;

// Numbers that turn a style on and off. @see ECMA-48, SGR
const STYLES = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39],
} as const;

export type Style = keyof typeof STYLES;

export interface Screen {
  readonly isTerminal: boolean;
  /** Lines may have any length if `undefined`. */
  readonly columns: number | undefined;
  style(style: Style, text: string): string;
}

/**
 * Opens the screen behind standard output (1) or standard error (2), or the terminal that standard input (0) is.
 *
 * @param env `NO_COLOR` and `TERM=dumb` turn colour off, see https://no-color.org
 */
export function openScreen(fd: 0 | 1 | 2, env: Readonly<Record<string, string | undefined>>): Screen {
  // struct winsize { unsigned short ws_row, ws_col, ws_xpixel, ws_ypixel; }
  const size = new Uint16Array(4);
  const isTerminal = ignoreSystemErrors(() => sys.ioctl(fd, TIOCGWINSZ, size)) !== undefined;
  const hasColour = isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb";
  return {
    isTerminal,
    // A serial console does not know its width.
    columns: isTerminal && size[1]! > 0 ? size[1] : undefined,
    style(style, text) {
      const [on, off] = STYLES[style];
      return hasColour ? `\u001b[${on}m${text}\u001b[${off}m` : text;
    },
  };
}
