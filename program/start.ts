export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly programName: string;
  /** Returns `undefined` if it was removed. */
  findWorkingDirectory(): string | undefined;
  findParentPid(): number;
  /** The unit is nanoseconds since 1970. */
  readonly startTime: bigint;
  /** Told of the code of an error (SPEC §Error). */
  onFailure?(code: number): void;
}

/** The kernel starts it in this process, or a shim in another. Standard streams are descriptors 0 to 2. */
export interface ProgramStart extends CliContext {
  readonly argv: readonly string[];
}
