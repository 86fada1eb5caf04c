/** What parts say of their work: a byte each, in a file that the supervisor and its parts have open. @module */
import { pread, pwrite } from "../ffi/sys/file.ts";
import { PARTS } from "./part_definitions.ts";

// A part that has said nothing counts as having work.
const WORK = 0;
const NO_WORK = 1;

export const WORK_FILE_BYTES = PARTS.length;

const slotOf = (name: string): number => PARTS.findIndex((part) => part.name === name);

/** Must come before a part starts: what an earlier process said counts no more. */
export function forgetWork(file: number, name: string): void {
  pwrite(file, slotOf(name), Uint8Array.of(WORK));
}

export function hasSaidNoWork(file: number, name: string): boolean {
  const state = new Uint8Array(1);
  pread(file, slotOf(name), state);
  return state[0] === NO_WORK;
}

/** @returns tells the supervisor whether there is work, where that has changed */
export function workTeller(file: number, name: string): (hasWork: boolean) => void {
  let told = true;
  return (hasWork) => {
    if (hasWork === told) return;
    pwrite(file, slotOf(name), Uint8Array.of(hasWork ? WORK : NO_WORK));
    told = hasWork;
  };
}
