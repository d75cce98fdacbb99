"""How a process starts and ends: modules load with their first use, and loops stop when they are asked to."""
