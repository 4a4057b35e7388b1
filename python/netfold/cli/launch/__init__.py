"""`netfold up`: one command on one machine starts a job on several. keeper.py runs on every machine and does what
machines.py asks it over ssh or srun; survey.py says what a machine is, verdicts.py what the machines lack together,
placement.py where a switch helps, commands.py what each machine runs, and job.py runs it to the end."""
