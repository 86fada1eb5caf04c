import { sysctlWord } from "../../ffi/sys/sysctl.ts";
import { broken, type Finding } from "./finding.ts";
import { shellCommand } from "../../spec/shell_command.ts";

/** A kernel parameter that is 0 and must be 1. @param name its path below /proc/sys */
export function closedSysctl(name: string, consequence: string): Finding {
  const repair = { kind: "sysctl", name, value: "1" } as const;
  const shown = sysctlWord(name);
  return broken(`${shown} is 0: ${consequence}`, shellCommand(["sysctl", "-w", `${shown}=1`]), repair);
}
