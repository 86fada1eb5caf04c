/** The last address of each range set. Allocation continues after it. The files are the reference plugin's. */
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

export interface LastReserved extends Disposable {
  /** `undefined` also if the file is unreadable. */
  find(set: number): Ip | undefined;
  write(set: number, address: Ip): void;
}

interface HintFile extends Descriptor {
  readonly text: string;
}

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

/** One write within a page, which no signal interrupts. False if the end of a longer address would remain. */
function writeOver({ fd, text }: HintFile, address: Ip): boolean {
  if (address.length < text.length) return false;
  const write = () => {
    pwrite(fd, 0, new TextEncoder().encode(address));
    return true;
  };
  return ignoreSystemErrors(write) ?? false;
}

/** A directory in the file's place must not fail an ADD. */
function replaceHint(path: string, address: Ip, log: (message: string) => void): void {
  try {
    replaceFile(path, address);
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EISDIR")) throw error;
    log(`${error.message}; continuing without it`);
  }
}
