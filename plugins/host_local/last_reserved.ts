/**
 * The address that each range set gave last: a hint where to go on, in a file of its own, as the reference plugin has it.
 *
 * @module
 */
import { type Ip, parseIp } from "../../ffi/address.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError } from "../../ffi/sys/error.ts";
import {
  type Descriptor,
  findText,
  NOT_A_FILE_CODES,
  openReadWrite,
  pwrite,
  readOrdinaryText,
} from "../../ffi/sys/file.ts";
import { replaceFile } from "../../ffi/sys/atomic_file.ts";

/** The hints of a network, by the numbers of its range sets. */
export interface LastReserved extends Disposable {
  /** What cannot be read is as good as nothing. */
  find(set: number): Ip | undefined;
  write(set: number, address: Ip): void;
}

/** A file with an address in it, which can be written over. */
interface HintFile extends Descriptor {
  readonly text: string;
}

/** @param log told of files that hold no address, and of what cannot be replaced by one */
export function openLastReserved(directory: string, log: (message: string) => void): LastReserved {
  const resources = new DisposableStack();
  const files = new Map<number, HintFile>();
  const pathOf = (set: number) => `${directory}/last_reserved_ip.${set}`;
  return {
    find(set) {
      const file = ignoreSystemErrors(() => openReadWrite(pathOf(set)));
      if (file) resources.use(file);
      const text = ignoreErrors(NOT_A_FILE_CODES, () => file ? readOrdinaryText(file.fd) : findText(pathOf(set)));
      if (text === undefined) return undefined;
      try {
        const address = parseIp(text);
        if (file) files.set(set, { ...file, text });
        return address;
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        log(
          `Starting at the first address: "${pathOf(set)}" holds no address but ${JSON.stringify(text.slice(0, 80))}`,
        );
        return undefined;
      }
    },
    write(set, address) {
      const file = files.get(set);
      if (!(file && writeOver(file, address))) replaceHint(pathOf(set), address, log);
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** In one write within a page, which no signal cuts; false if that would leave the end of a longer address. */
function writeOver({ fd, text }: HintFile, address: Ip): boolean {
  if (address.length < text.length) return false;
  return ignoreSystemErrors(() => (pwrite(fd, 0, new TextEncoder().encode(address)), true)) ?? false;
}

/** A directory that somebody put in the place of the file is in nobody's way. */
function replaceHint(path: string, address: Ip, log: (message: string) => void): void {
  try {
    replaceFile(path, address);
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EISDIR")) throw error;
    log(`${error.message}; continuing without it`);
  }
}
