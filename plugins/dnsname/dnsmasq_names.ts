/** The names of a dnsmasq that the Go plugin has left: rarely needed, so not loaded at start-up. @module */
import type { Ip } from "../../ffi/address.ts";
import { replaceFile } from "../../ffi/sys/atomic_file.ts";
import { findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { findText, removeFile } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { observer } from "../../ffi/sys/observer.ts";
import { SIGHUP, SIGTERM } from "../../ffi/sys/uapi.ts";
import type { ReferenceDnsmasq } from "./reference_dnsmasq.ts";

const LOCK_TIMEOUT_MS = 10_000;

/** Its lines have the first name, or the id as one of the names. */
export interface LineOwner {
  readonly name: string;
  readonly id: string;
}

/** @param names the first one is the owner's */
export function addToDnsmasq(
  { directory, network, pid }: ReferenceDnsmasq,
  owner: LineOwner,
  addresses: readonly Ip[],
  names: readonly string[],
): void {
  using _lock = lockNames(directory);
  const lines = addresses.map((address) => [address, ...names]);
  writeLines(directory, [...readLines(directory).filter((line) => !isOwnedBy(line, owner)), ...lines]);
  signal(pid, SIGHUP, directory, `read the names of network "${network}" again`);
}

/** Ends the dnsmasq once it has no names. */
export function removeFromDnsmasq({ directory, network, pid }: ReferenceDnsmasq, owner: LineOwner): void {
  using _lock = lockNames(directory);
  const lines = readLines(directory).filter((line) => !isOwnedBy(line, owner));
  if (lines.length > 0) {
    writeLines(directory, lines);
    signal(pid, SIGHUP, directory, `read the names of network "${network}" again`);
    return;
  }
  signal(pid, SIGTERM, directory, `end, since network "${network}" has no more names`);
  for (const file of findEntryNames(directory) ?? []) removeFile(`${directory}/${file}`);
  removeEmptyDirectory(directory);
}

export function isInDnsmasq({ directory }: ReferenceDnsmasq, owner: LineOwner, addresses: readonly Ip[]): boolean {
  const known = readLines(directory).filter((line) => isOwnedBy(line, owner)).map(([address]) => address);
  return addresses.every((address) => known.includes(address));
}

/** A line of the file: an address, then names. */
type Line = readonly string[];

const isOwnedBy = ([, ...names]: Line, { name, id }: LineOwner): boolean => names[0] === name || names.includes(id);

const lockNames = (directory: string): Disposable => lockFile(`${directory}/lock`, { timeoutMs: LOCK_TIMEOUT_MS });

function readLines(directory: string): Line[] {
  const text = findText(`${directory}/addnhosts`) ?? "";
  return text.split("\n").map((line) => line.split(/\s+/).filter((word) => word !== ""))
    .filter(({ length }) => length > 0);
}

function writeLines(directory: string, lines: readonly Line[]): void {
  replaceFile(`${directory}/addnhosts`, lines.map((line) => `${line.join("\t")}\n`).join(""), 0o644);
}

function signal(pid: number, number: number, directory: string, sentence: string): void {
  const send = () => void ignoreErrors(["ESRCH"], () => sys.kill(pid, number));
  if (observer) observer({ kind: "server", socketPath: directory, sentence, rehearse: () => undefined }, send);
  else send();
}
