import { CniError } from "../../../spec/error.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { withLog } from "../../../runtime/host_context.ts";
import { requireAddable } from "../../../runtime/status.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import { remedyForInconclusive } from "../inconclusive.ts";
import type { Subject } from "../subject.ts";

export function checkStatus({ runtime, network }: Subject): Finding[] {
  const warnings: Finding[] = [];
  const log = (message: string) => void warnings.push(warning(message, {}));
  try {
    requireAddable({ ...runtime, hostContext: withLog(runtime.hostContext, log), log: () => {} }, network);
    return [ok("STATUS of all plugins succeeds: an ADD finds what it needs"), ...warnings];
  } catch (error) {
    const { message, details } = CniError.from(error);
    const inconclusive = remedyForInconclusive(error, network.name);
    if (inconclusive !== undefined) return [warning(`STATUS was not possible: ${message}`, inconclusive)];
    const again = shellCommand([
      "cni",
      "run",
      "status",
      network.source?.startsWith("/") ? network.source : network.name,
    ]);
    return [broken(`no ADD succeeds: ${message}`, details ? advise(details, again) : again)];
  }
}
