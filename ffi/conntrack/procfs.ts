/**
 * Looks for conntrack entries in procfs: 0.3 ms while there are few. Over netlink, the kernel walks all buckets: 9 ms.
 *
 * @see net/netfilter/nf_conntrack_standalone.c ct_seq_show()
 * @module
 */
import { SystemError } from "../sys/error.ts";
import { openFile, readAvailable } from "../sys/file.ts";

const PROCFS_PATH = "/proc/thread-self/net/nf_conntrack";
/** Each gives some 20 connections; old kernels rescan their table for it. */
const MAX_READS = 8;

/** @returns true also for many connections, or without the file */
export function mayHaveEntriesFor(ports: readonly number[]): boolean {
  try {
    const text = readIfShort();
    return text === undefined || ports.some((port) => text.includes(` dport=${port} `));
  } catch (error) {
    if (error instanceof SystemError) return true;
    throw error;
  }
}

function readIfShort(): string | undefined {
  using file = openFile(PROCFS_PATH);
  const decoder = new TextDecoder();
  let text = "";
  for (let reads = 0; reads < MAX_READS; reads++) {
    const chunk = readAvailable(file.fd);
    if (chunk.length === 0) return text;
    text += decoder.decode(chunk, { stream: true });
  }
  return undefined;
}
