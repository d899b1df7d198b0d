mod faults;
mod frames;
mod machine;
mod rogue;
