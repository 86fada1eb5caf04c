/**
 * A dnsmasq that the Go plugin has left for a network. It reads names from a file with a line for each address.
 *
 * It has port 53 of the network's gateway, and goes on to answer as long as the network has containers. New containers
 * are entered into its file, so that old and new ones find each other.
 */
import { findText } from "../../ffi/sys/file.ts";

/** The directories of root: the Go plugin asks XDG_RUNTIME_DIR, which a login sets. */
const RUNTIME_DIRECTORIES = ["/run", "/run/user/0"];

export interface ReferenceDnsmasq {
  readonly network: string;
  readonly directory: string;
  readonly pid: number;
}

export function findReferenceDnsmasq(network: string): ReferenceDnsmasq | undefined {
  for (const runtime of RUNTIME_DIRECTORIES) {
    const directory = `${runtime}/containers/cni/dnsname/${network}`;
    const pid = Number(findText(`${directory}/pidfile`) ?? 0);
    // Another process may have got the number.
    const command = pid > 0 ? findText(`/proc/${pid}/cmdline`) ?? "" : "";
    if (command.includes(`${directory}/dnsmasq.conf`)) return { network, directory, pid };
  }
  return undefined;
}
