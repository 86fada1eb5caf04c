/** The files of a configuration directory, as engines see them. */
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { CniError } from "../spec/error.ts";
import { parseJson } from "../spec/jsonc.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { isJsonObject } from "../spec/schema.ts";
import { listConfFiles, loadListedNetwork } from "../runtime/load.ts";

/** One file: a network, or why it is none. */
export interface NetworkFile {
  readonly file: string;
  readonly list?: NetworkConfigList;
  readonly problem?: string;
}

export interface ConfiguredNetwork {
  readonly list: NetworkConfigList;
  /** `attachment`: there is no file, but the cache has the configuration of an ADD. */
  readonly origin: "file" | "built-in" | "attachment";
  /** Absent for other origins than `file`. */
  readonly file?: string;
}

/** In the order of {@linkcode loadNetwork}, which uses the first file of a name. */
export function readNetworkFiles(directory: string): NetworkFile[] {
  return listConfFiles(directory).filter((file) => !isDirectory(file)).map((file) => {
    try {
      return { file, list: loadListedNetwork(file) };
    } catch (error) {
      const { message, details } = CniError.from(error);
      return { file, problem: details ? `${message} (${details})` : message };
    }
  });
}

const isDirectory = (path: string): boolean => ignoreSystemErrors(() => findStat(path)?.isDirectory) === true;

/** A file that is no network otherwise may have a name. */
export function findNameIn({ file, list }: NetworkFile): string | undefined {
  if (list) return list.name;
  const document = ignoreSystemErrors(() => ignoreSyntaxErrors(() => parseJson(readText(file))));
  return isJsonObject(document) && typeof document.name === "string" ? document.name : undefined;
}

function ignoreSyntaxErrors<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
