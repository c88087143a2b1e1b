# gnuplot -e "csv='dialects.csv'" examples/07_plot.gp -- draws the scales of all dialects into dialects.png
if (!exists("csv")) csv = 'dialects.csv'
if (!exists("png")) png = 'dialects.png'
set terminal pngcairo size 1100,650
set output png
set datafile separator ','
stats csv skip 1 nooutput
set title 'Loss scales over the same steps: limit sinks, 60 batches with a NaN, divergence at the end'
set xlabel 'step'
set ylabel 'loss scale'
set logscale y 2
set format y '2^{%L}'
set yrange [2.0**-20:2.0**34]
set key outside right top noenhanced autotitle columnhead
plot csv using 1:2 with lines lw 6 lc rgb '#dddddd', \
     for [d=4:STATS_columns] csv using 1:d with lines lw 1, \
     csv using 1:3 with lines lw 3 lc rgb '#000000'
