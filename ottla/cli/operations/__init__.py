"""What is done: functions of a client, without options or output."""
