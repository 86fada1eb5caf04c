/**
 * Whether conntrack may have entries for a port, from procfs: 0.3 ms while there are few.
 *
 * Over netlink, the kernel walks a quarter of a million buckets: 9 ms, however few are used.
 *
 * @see net/netfilter/nf_conntrack_standalone.c ct_seq_show()
 * @module
 */
import { SystemError } from "../sys/error.ts";
import { openFile, readAvailable } from "../sys/file.ts";

const PROCFS_PATH = "/proc/thread-self/net/nf_conntrack";
/** Each gives a page of some 20 connections. Old kernels rescan their table for each. */
const MAX_READS = 8;

/**
 * Whether the thread's namespace may track a connection to one of these ports.
 *
 * @returns true if it does, if there are many connections, or if the kernel has no such file
 */
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
