export interface PartDefinition {
  readonly name: string;
  /** SOCK_STREAM or SOCK_SEQPACKET: its clients connect to a socket. Without one, the part starts with the server. */
  readonly socketType?: number;
}

/** Each runs what `part_programs.ts` has under its name. */
export const PARTS: readonly PartDefinition[] = [
  { name: "metrics" },
];

/** `directory`: that of the server's socket. */
export function partPaths(directory: string, name: string): { readonly socket: string; readonly state: string } {
  return { socket: `${directory}/${name}.sock`, state: `${directory}/${name}` };
}
